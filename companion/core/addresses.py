"""Which computer an address of the network is counted for, where a server limits each."""

import ipaddress

COMPUTER_BITS = 64  # of an IPv6 address: a computer chooses the others itself, as it likes


def computer_of(address: str) -> str:
    """An IPv4 address itself, of an IPv6 address its network of 64 bits; any other text itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), COMPUTER_BITS), strict=False))
