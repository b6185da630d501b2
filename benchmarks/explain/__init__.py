"""Explanations: how long they take and in how much memory, and whether they find the features that matter.

    python -m benchmarks.explain [--data FOLDER] [--only speed truth] [--quick] [--threads N] [--output FOLDER]

speed   rows of 1.36 million features (news20_binary of FOLDER, or generated rows of its shape) beside their prediction;
        peak memory for 10^4 to 10^7 features; tables beside LightGBM's contributions and shap's PermutationExplainer
truth   generated problems whose relevant features are known: how many of them have the largest importances
"""
