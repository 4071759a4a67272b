"""What all sources share: from what an entrance heard to batches and heartbeats that are durable."""
