"""Model files: one safetensors file for each model, written completely or not at all, checked before it is used."""

from gbun.model_io.format import model_bytes, read_model, read_model_bytes, read_model_file, write_model

__all__ = ["model_bytes", "read_model", "read_model_bytes", "read_model_file", "write_model"]
