"""How fast gbun is: beside LightGBM, XGBoost and a plain prototype, and beside what the machine can do at best.

    python -m benchmarks.speed --data FOLDER [--only PART ...] [--quick] [--threads N] [--output FOLDER]
    python -m benchmarks.speed --only large [--rows 300000] [--threads N] [--output FOLDER]
    python -m benchmarks.speed --device torch:cpu [--data FOLDER] [--quick] [--threads N] [--output FOLDER]

Parts: rounds, kernels, scaling, width, prediction, trees, tree_prediction. Two more are run only by name: devices, for
the device that --device names, and large, ten million rows in several gigabytes, or as many as --rows says.
Learners that are compared take turns within one run, a unit of work each. If the machine is slow for a minute, it is
slow for all.
The part `target` of `python -m benchmarks.accuracy --wide` measures the seconds until a score is reached.
"""
