"""Arrays on many devices: meshes, sharding rules, and collectives."""
