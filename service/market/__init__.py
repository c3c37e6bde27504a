"""The market: polled into the store (`polling`), read as of any instant (`snapshot`), shown over time (`history`)."""
