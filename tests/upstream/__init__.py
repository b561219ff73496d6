"""The gateway answers by a Hermes API server itself: real agents, real gateways, no bridge in between."""
