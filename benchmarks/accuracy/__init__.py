"""How accurate gbun is beside LightGBM and XGBoost, chosen on validation rows and reported on test rows.

python -m benchmarks.accuracy --data DIR [--only letter,a9a] [--output results/accuracy]
python -m benchmarks.accuracy --wide --data DIR [--sets a9a,imdb] [--part defaults|tuned|target|all]
python -m benchmarks.accuracy --tables --data DIR [--only adult,letter] [--tuned 30 | --ablations] [--folder FILES]
"""
