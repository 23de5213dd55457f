"""todo."""
from pathlib import Path
from wlgen.audit import Audit
def write_page(audit: Audit, path: Path) -> None:
    path.write_text(audit.name)
