"""Members added from outside the packages, each in one file: the recipes of CONTRIBUTING, run by the tests."""
