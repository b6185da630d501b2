"""LightGBM, XGBoost, CatBoost, Vowpal Wabbit and linear models, wrapped once for all benchmarks, with gbun beside them.

`learners.py` and `linear.py` fit models and watch validation rows, `rounds.py` adds one boosting round at a time,
`hosts.py` trains on several hosts, `spark.py` on a Spark cluster. A peer is imported when it is first used.
"""
