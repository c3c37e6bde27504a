"""SamuLLM's evaluation again, by its own strategies and sutler's: writes docs/offline-results.md."""
