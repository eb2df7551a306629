"""Arrays on many devices: meshes, the rules that place arrays, and what devices exchange."""
