from benchmarks.paper.classes import EXPERIMENT
from benchmarks.paper.experiment import main

if __name__ == "__main__":
    main(EXPERIMENT)
