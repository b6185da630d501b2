"""From files, arrays, frames and names to the features a network reads."""
