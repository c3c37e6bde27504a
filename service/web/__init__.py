"""What all endpoints share: the application, bodies, problems, pages, limits, the OpenAPI document."""
