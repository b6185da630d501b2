"""Untrained networks: a few numbers from which every machine makes the same weights."""

from gbun.networks.recipe import Family, Network
from gbun.networks.simhash import hash_name, weights

__all__ = ["Family", "Network", "hash_name", "weights"]
