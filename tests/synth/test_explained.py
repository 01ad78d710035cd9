"""What a person reads of a plan: the pairs on which other tools were beaten, as golden text."""

from __future__ import annotations

from inline_snapshot import snapshot

from redist.synth import synthesize
from redist.types import Layout, Mesh


def _explained(mesh: str, source: str, target: str) -> str:
    devices = Mesh.parse(mesh)
    return synthesize(Layout.parse(source, devices), Layout.parse(target, devices)).explain()


def test_pair_0() -> None:
    """The whole text."""
    assert _explained("x=2,y=2,z=2", "[8{y}, 8{x,z}, 8]", "[8, 8, 8{x,y,z}]") == snapshot("""\
f32[8{y}, 8{x,z}, 8] on x=2,y=2,z=2  ->  f32[8, 8, 8{x,y,z}]   (bytes are per device)
step                                           layout after          received   live   peak
source                                         f32[8{y}, 8{x,z}, 8]                   256 B
1. all-to-all x: 1 -> 2; y: 0 -> 2; z: 1 -> 2  f32[8, 8, 8{x,y,z}]      224 B  512 B  512 B
received 224 B in 1 communication step: exactly what is missing
largest block 256 B, within the bound of 256 B; live peak 512 B
replicating and slicing would receive 1.75 KiB and hold 2 KiB, 8x the bound\
""")


def test_pair_1() -> None:
    """The whole text."""
    assert _explained("x=2,y=2,z=2", "[8, 8, 8{x,y}]", "[8{x,z}, 8{y}, 8]") == snapshot("""\
f32[8, 8, 8{x,y}] on x=2,y=2,z=2  ->  f32[8{x,z}, 8{y}, 8]   (bytes are per device)
step                                  layout after          received   live   peak
source                                f32[8, 8, 8{x,y}]                      512 B
1. slice dim 2 by z                   f32[8, 8, 8{x,y,z}]        0 B  768 B  768 B
2. all-to-all y: 2 -> 1; x,z: 2 -> 0  f32[8{x,z}, 8{y}, 8]     224 B  1 KiB  1 KiB
received 224 B in 1 communication step: 1.17x the lower bound of 192 B
largest block 512 B, within the bound of 512 B; live peak 1 KiB
no plan of uniform steps in normal form is cheaper (proven)
an exchange of the missing elements alone would receive 192 B
replicating and slicing would receive 1.5 KiB and hold 2 KiB, 4x the bound\
""")


def test_pair_2() -> None:
    """The whole text."""
    assert _explained("x=2,y=2,z=2", "[8, 8{x,y}]", "[8{y,x}, 8]") == snapshot("""\
f32[8, 8{x,y}] on x=2,y=2,z=2  ->  f32[8{y,x}, 8]   (bytes are per device)
step                       layout after    received   live   peak
source                     f32[8, 8{x,y}]                    64 B
1. all-to-all y,x: 1 -> 0  f32[8{y,x}, 8]      48 B  128 B  128 B
received 48 B in 1 communication step: exactly what is missing
largest block 64 B, within the bound of 64 B; live peak 128 B
replicating and slicing would receive 192 B and hold 256 B, 4x the bound\
""")


def test_pair_3() -> None:
    """The whole text."""
    assert _explained("x=2,y=4", "[8{x}, 8{y}]", "[8{y}, 8{x}]") == snapshot("""\
f32[8{x}, 8{y}] on x=2,y=4  ->  f32[8{y}, 8{x}]   (bytes are per device)
step                          layout after                 received  live  peak
source                        f32[8{x}, 8{y}]                              32 B
1. permute                    f32[8{y:(1)2}, 8{x,y:(2)2}]      32 B  64 B  64 B
2. all-to-all y:(2)2: 1 -> 0  f32[8{y}, 8{x}]                  16 B  96 B  96 B
received 48 B in 2 communication steps: 1.5x the lower bound of 32 B
largest block 32 B, within the bound of 32 B; live peak 96 B
no plan of uniform steps in normal form is cheaper (proven)
an exchange of the missing elements alone would receive 32 B
replicating and slicing would receive 224 B and hold 256 B, 8x the bound\
""")


def test_pair_4() -> None:
    """The whole text."""
    assert _explained("x=2,y=3", "[12{x}, 12{y}]", "[12{y,x}, 12]") == snapshot("""\
f32[12{x}, 12{y}] on x=2,y=3  ->  f32[12{y,x}, 12]   (bytes are per device)
step                       layout after       received   live   peak
source                     f32[12{x}, 12{y}]                    96 B
1. all-to-all x: 0 -> 1    f32[12, 12{y,x}]       48 B  192 B  192 B
2. all-to-all y,x: 1 -> 0  f32[12{y,x}, 12]       80 B  288 B  288 B
received 128 B in 2 communication steps: 1.33x the lower bound of 96 B
largest block 96 B, within the bound of 96 B; live peak 288 B
no plan of uniform steps in normal form is cheaper (proven)
an exchange of the missing elements alone would receive 96 B
replicating and slicing would receive 480 B and hold 576 B, 6x the bound\
""")


def test_pair_5() -> None:
    """The whole text."""
    assert _explained("x=2,y=3", "[12{x}, 12{y}]", "[12{y}, 12{x}]") == snapshot("""\
f32[12{x}, 12{y}] on x=2,y=3  ->  f32[12{y}, 12{x}]   (bytes are per device)
step                       layout after       received   live   peak
source                     f32[12{x}, 12{y}]                    96 B
1. all-to-all x: 0 -> 1    f32[12, 12{y,x}]       48 B  192 B  192 B
2. all-to-all y,x: 1 -> 0  f32[12{y,x}, 12]       80 B  288 B  288 B
3. all-to-all x: 0 -> 1    f32[12{y}, 12{x}]      48 B  288 B  288 B
received 176 B in 3 communication steps: 1.83x the lower bound of 96 B
largest block 96 B, within the bound of 96 B; live peak 288 B
no plan of uniform steps in normal form is cheaper (proven)
an exchange of the missing elements alone would receive 96 B
replicating and slicing would receive 480 B and hold 576 B, 6x the bound\
""")


def test_pair_6() -> None:
    """The whole text."""
    assert _explained("x=2,y=4", "[8{x}, 8]", "[8, 8{y}]") == snapshot("""\
f32[8{x}, 8] on x=2,y=4  ->  f32[8, 8{y}]   (bytes are per device)
step                      layout after     received   live   peak
source                    f32[8{x}, 8]                      128 B
1. slice dim 1 by y       f32[8{x}, 8{y}]       0 B  160 B  160 B
2. all-gather dim 0 by x  f32[8, 8{y}]         32 B  224 B  224 B
received 32 B in 1 communication step: exactly what is missing
largest block 128 B, within the bound of 128 B; live peak 224 B
replicating and slicing would receive 128 B and hold 256 B, 2x the bound\
""")


def test_pair_7() -> None:
    """The whole text."""
    assert _explained("x=4,y=2", "[16{y}, 16, 16{x}]", "[16, 16{x,y}, 16]") == snapshot("""\
f32[16{y}, 16, 16{x}] on x=4,y=2  ->  f32[16, 16{x,y}, 16]   (bytes are per device)
step                                layout after           received   live   peak
source                              f32[16{y}, 16, 16{x}]                   2 KiB
1. all-to-all x: 2 -> 1; y: 0 -> 1  f32[16, 16{x,y}, 16]   1.75 KiB  4 KiB  4 KiB
received 1.75 KiB in 1 communication step: exactly what is missing
largest block 2 KiB, within the bound of 2 KiB; live peak 4 KiB
replicating and slicing would receive 14 KiB and hold 16 KiB, 8x the bound\
""")


def test_pair_8() -> None:
    """The whole text."""
    assert _explained("x=64,y=4", "[1024{x,y}, 4096]", "[1024, 4096{x}]") == snapshot("""\
f32[1024{x,y}, 4096] on x=64,y=4  ->  f32[1024, 4096{x}]   (bytes are per device)
step                       layout after          received     live     peak
source                     f32[1024{x,y}, 4096]                      64 KiB
1. all-to-all x,y: 0 -> 1  f32[1024, 4096{x,y}]  63.8 KiB  128 KiB  128 KiB
2. all-gather dim 1 by y   f32[1024, 4096{x}]     192 KiB  384 KiB  384 KiB
received 256 KiB in 2 communication steps: 1x the lower bound of 255 KiB
largest block 256 KiB, within the bound of 256 KiB; live peak 384 KiB
no plan of uniform steps in normal form is cheaper (proven)
an exchange of the missing elements alone would receive 255 KiB
replicating and slicing would receive 15.9 MiB and hold 16 MiB, 64x the bound\
""")


def test_pair_9() -> None:
    """The whole text."""
    assert _explained("x=2,y=2,z=2", "[8, 8{x,y,z}]", "[8{x,y,z}, 8]") == snapshot("""\
f32[8, 8{x,y,z}] on x=2,y=2,z=2  ->  f32[8{x,y,z}, 8]   (bytes are per device)
step                         layout after      received  live  peak
source                       f32[8, 8{x,y,z}]                  32 B
1. all-to-all x,y,z: 1 -> 0  f32[8{x,y,z}, 8]      28 B  64 B  64 B
received 28 B in 1 communication step: exactly what is missing
largest block 32 B, within the bound of 32 B; live peak 64 B
replicating and slicing would receive 224 B and hold 256 B, 8x the bound\
""")
