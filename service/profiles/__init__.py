"""What the benchmarks of users measured: read from their files, checked, stored, fitted by `sutler calibrate`."""
