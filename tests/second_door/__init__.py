"""The second door: what front ends get over HTTP and SSE."""
