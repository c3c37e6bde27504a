"""What a user's own benchmarks measured: read from result files, checked, stored, and fitted by `sutler calibrate`."""
