"""The part that all sources share: received sightings become durable batches and heartbeats."""
