"""What is asked besides plans: what-ifs, comparisons and simulations, made by the same workers and kept like plans.

Flow: endpoints.py -> service.py (admitted, resolved, perhaps remembered) -> queue -> workers/study_job.py -> solver
process -> answering.py. `sutler plan --set`, `compare` and `simulate` answer the same questions (service/library).
"""
