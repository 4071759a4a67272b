"""A simulated world, in which the product's own code meets faults that a seed draws.

- ``processes``: deterministic processes with virtual time, each with event loops of its own; pause, kill, guards.
- ``kafka_logs``: what the brokers of one cluster store, and when records become visible; knows no protocol.
- ``kafka_groups``: the coordinators of consumer groups and of transactions.
- ``kafka_brokers``: brokers that speak Kafka's protocol over the network of the world.
- ``network``: connections between processes and brokers.

``docs/simulation.md`` explains the levels, and how to run a seed and read its time line.
"""
