"""The failure cases of the public record, by number, each with every input that its record names."""
