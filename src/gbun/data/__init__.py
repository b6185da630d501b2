"""Read files, arrays, frames and names into features."""
