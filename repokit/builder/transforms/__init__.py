"""What a build does to tensor values. The only place, with repo/values.py, that imports numpy and ml_dtypes."""
