"""How accurate gbun is beside LightGBM and XGBoost, chosen on validation rows and reported on test rows.

python -m benchmarks.accuracy --data DIR [--only letter,a9a] [--output results/accuracy]
"""
