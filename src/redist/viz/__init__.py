"""Plans as pictures: one page that shows a plan to a person."""

from redist.viz.page import plan_page

__all__ = ["plan_page"]
