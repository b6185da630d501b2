"""Tests run in processes side by side: idle threads of torch and LightGBM must not spin while others compute."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before anyone loads OpenMP
