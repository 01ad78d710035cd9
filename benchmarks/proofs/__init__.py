"""Figures of the proofs: plans of ours, audits of peers against simulation, and what verifying costs."""
