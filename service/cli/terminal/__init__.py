"""How commands read, wait, write and end: files, the service, progress, output and exit statuses."""
