"""Every error that repokit raises on purpose.

RepokitError                    exit 2: could not run, or could not check
├── UsageError                  the command line asks for something that does not go together
├── RecipeError                 repokit.yaml cannot be used as it is
├── InputError                  something that is to be read cannot be
│   ├── MissingInput            it is not there, or may not be read
│   ├── MalformedFile           a file is not what its name says; the linter reports it as a finding
│   ├── UnsupportedSource       a checkpoint that this version recognises and does not read
│   └── LimitExceeded           larger, deeper or slower than a real file would be
├── BuildError                  nothing was published; what was there before is still there
│   ├── PlanError               the recipe and the weights contradict each other
│   ├── TargetRefused           the output directory is not repokit's to replace
│   ├── LockHeld                another build writes to the same output
│   ├── NoSpace                 the disk is too small for what would be written
│   └── ExecutorLost            the cluster that writes is gone; what it has finished is used again
├── Stopped                     exit 1: findings at or above --fail-on, or a missing license, stopped the work
├── PublishError                nothing was published, or what was published is not what was meant
│   ├── NotAuthorized           no token, a wrong token, or one without the right to write
│   ├── RevisionNotFound        the repository, branch or tag does not exist
│   ├── ParentMoved             someone else committed since the changes were worked out
│   ├── HubUnreachable          no answer, or one that is not the Hub's
│   └── VerificationFailed      the pushed tree is not the built directory
└── InternalError               a bug in repokit: says so, and how to report it

An error is read by a person who wants to go on: `what` happened (with the file and the place in it), `why` it bites,
and the `hint`: the command or the edit that comes next.
"""

from __future__ import annotations

from repokit.printable import printable


class RepokitError(Exception):
    """Base of everything raised on purpose.

    Attributes:
        what: One line: what is wrong. Untrusted parts are escaped by the caller with `printable`.
        why: One line: what breaks, and for whom.
        hint: One line: the command to run or the edit to make next.
        path: The offending file, relative to the repository or as the user gave it.
        place: Where in that file: `line 3 column 14`, a JSON Pointer, a tensor name.
        exit_code: What the process ends with.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        why: str | None = None,
        hint: str | None = None,
        path: str | None = None,
        place: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.path = path
        self.place = place

    def __str__(self) -> str:
        """`path: place: what`, as much of it as is known."""
        parts = [printable(part) for part in (self.path, self.place) if part]
        return ": ".join([*parts, self.what])


class UsageError(RepokitError):
    """The command line asks for something that does not go together."""


class RecipeError(RepokitError):
    """repokit.yaml cannot be used as it is."""


class InputError(RepokitError):
    """Something that is to be read cannot be."""


class MissingInput(InputError):
    """It is not there, or may not be read."""


class MalformedFile(InputError):
    """A file is not what its name says; the linter reports it as a finding."""


class UnsupportedSource(InputError):
    """A checkpoint that this version recognises and does not read."""


class LimitExceeded(InputError):
    """Larger, deeper or slower than a real file would be."""


class BuildError(RepokitError):
    """Nothing was published; what was there before is still there."""


class PlanError(BuildError):
    """The recipe and the weights contradict each other."""


class TargetRefused(BuildError):
    """The output directory is not repokit's to replace."""


class LockHeld(BuildError):
    """Another build writes to the same output."""


class NoSpace(BuildError):
    """The disk is too small for what would be written."""


class ExecutorLost(BuildError):
    """The cluster that writes is gone; what it has finished is used again."""


class Stopped(RepokitError):
    """Findings at or above --fail-on, or a missing license, stopped the work.

    Attributes:
        findings: Of repokit.linter.finding.Finding; () where none stopped it.
    """

    exit_code = 1

    def __init__(self, what: str, *, findings: tuple[object, ...] = (), **places: str | None) -> None:
        super().__init__(what, **places)
        self.findings = findings


class PublishError(RepokitError):
    """Nothing was published, or what was published is not what was meant."""


class NotAuthorized(PublishError):
    """No token, a wrong token, or one without the right to write."""


class RevisionNotFound(PublishError):
    """The repository, branch or tag does not exist."""


class ParentMoved(PublishError):
    """Someone else committed since the changes were worked out."""


class HubUnreachable(PublishError):
    """No answer, or one that is not the Hub's."""


class VerificationFailed(PublishError):
    """The pushed tree is not the built directory."""


class InternalError(RepokitError):
    """A bug in repokit: says so, and how to report it."""
