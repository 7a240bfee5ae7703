"""The commands of the program `jaxtape` that compose pricing and calibration."""
