"""The clouds: each adapter turns one cloud's API into offers, and knows nothing of plans, databases or schedules.

`registry.PROVIDERS` lists what can be polled, `polling.poll` polls one, `base` says what comes back.
"""
