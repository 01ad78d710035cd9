"""Several hosts on one machine: network namespaces joined by a switch, every link shaped."""
