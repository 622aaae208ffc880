"""BRIDGE, and the stages that only it uses."""
