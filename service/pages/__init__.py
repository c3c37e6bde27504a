"""The pages under `/ui`: what is rented and why, drawn by the API's process from the same functions as its endpoints.

One file each: a page's routes and what it shows (`overview`, `deployment`, `market`, ...); its template is in
`templates/`. `route` answers errors as pages and knows who looks, `rendering` fills templates, `assets` has what
browsers load. Every page renews its `<main>` by asking for itself again (htmx), so there is no second set of
templates; own JavaScript draws charts, and nothing else needs it.
"""
