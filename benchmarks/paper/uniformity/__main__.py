from benchmarks.paper.experiment import main
from benchmarks.paper.uniformity import EXPERIMENT

if __name__ == "__main__":
    main(EXPERIMENT)
