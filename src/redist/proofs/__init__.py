"""Why a plan is right: obligations decided by a solver over symbolic devices, certificates, audits of foreign plans.

    certificate = redist.verify(plan)
    certificate.status            # "proved", "refuted" or "unknown"
    print(certificate)            # the obligations as a table, and the counterexample if there is one

The checker takes nothing from the planner: it reads the plan's layouts and steps, and encodes on its own what
they mean. Z3 is loaded when something is verified.
"""

from redist.proofs.certificate import Certificate, Counterexample, Obligation, Proved, Refuted, Unknown, Verdict
from redist.proofs.obligations import verify

__all__ = ["Certificate", "Counterexample", "Obligation", "Proved", "Refuted", "Unknown", "Verdict", "verify"]
