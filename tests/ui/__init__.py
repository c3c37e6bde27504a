"""The pages in a real browser: `make ui-test`. Skipped where Playwright or Chromium is missing."""
