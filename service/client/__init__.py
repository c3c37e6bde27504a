"""A running service, called from Python: `sutler.Client`, and `sutler.AsyncClient` where asyncio runs the program.

Flow: calls.py says what to send and how to read the answer, without sending anything; retries.py what is worth
another try; synchronous.py and asynchronous.py send, over httpx.
"""
