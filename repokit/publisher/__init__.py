"""From a finished directory to a verified, tagged commit.

push            the whole way, in order: read it first
local_tree      the directory as a list of files, and their hashes
target          the branch that it goes to: there, or created because it was asked for
changes         what a push would do; pure
pull_requests   what goes together with one; whether it is open, or was opened in spite of a lost answer
hub_client      every call to the Hub; the only module here that imports its client
retrying        patience with an end to it
verify          the tree of the commit against the directory
"""
