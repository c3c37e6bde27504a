"""The processes behind `sutler serve`: API, scheduler and worker, together under one parent or each on its own."""
