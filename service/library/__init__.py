"""What sutler can do, as functions: Python programs call them as `sutler.plan` and so on, the command line too."""
