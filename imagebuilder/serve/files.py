# SPDX-License-Identifier: Apache-2.0
"""Write the rendered files for the daemons, each complete or not at all."""

from __future__ import annotations

from imagebuilder.files import Content, place_files, set_access
from imagebuilder.nodes.scripts import render_template
from imagebuilder.nodes.types import Nodes
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.ganesha import CONFINED
from imagebuilder.serve.nfs import find_ganesha_release
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.render import (
    render_consoles,
    render_dhcp_hosts,
    render_dnsmasq,
    render_exports,
    render_ganesha,
    render_hosts,
    render_nginx,
)
from imagebuilder.serve.rotate import make_reports_log

NGINX_FOLDERS = ("nginx", "nginx/body", "nginx/proxy", "nginx/fastcgi", "nginx/uwsgi", "nginx/scgi")


def config_texts(config: ServeConfig, nodes: Nodes) -> dict[str, str]:
    """Every file of the configuration, by its name in `config.folder`."""
    texts = {
        "dnsmasq.conf": render_dnsmasq(config, nodes.nodes),
        "dhcp-hosts": render_dhcp_hosts(nodes.nodes),
        "hosts": render_hosts(config, nodes.nodes),
        "nginx.conf": render_nginx(config, nodes.nodes),
        "consoles": render_consoles(nodes.nodes),
    }
    if config.announces:
        texts["radvd.conf"] = render_template("radvd.conf.j2", config=config)
    if config.nfs is Nfs.KERNEL:
        return texts | {"exports": render_exports(config)}
    return texts | {"ganesha.conf": render_ganesha(config, find_ganesha_release())}


def make_config(config: ServeConfig, nodes: Nodes) -> list[str]:
    """Write the configuration; returns the names of what changed."""
    config.folder.mkdir(exist_ok=True)
    set_access(config.folder, 0o755)
    # nginx makes new logs readable for every user, but keeps the modes of existing ones.
    make_reports_log(config.tree)
    for name in (*NGINX_FOLDERS, "ganesha", CONFINED):
        (config.folder / name).mkdir(exist_ok=True)
    texts = config_texts(config, nodes).items()
    changed = place_files(Content(config.folder / name, text.encode()) for name, text in texts)
    return [path.name for path in changed]
