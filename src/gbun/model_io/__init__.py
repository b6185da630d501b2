"""Model files: one safetensors file a model, written whole or not at all, believed only once checked."""

from gbun.model_io.format import read_model, write_model

__all__ = ["read_model", "write_model"]
