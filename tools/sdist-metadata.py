"""A build backend that builds nothing.

pip asks the build backend of a source archive for its metadata even when it only downloads. This
stands in for that backend and answers with the PKG-INFO that the archive carries, so nothing of
the archive is run and no unpinned build tool is fetched. tools/setup puts it on the path under
the names of the backends that our archives ask for.
"""
import os
import shutil
from email.parser import HeaderParser


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    with open("PKG-INFO", encoding="utf-8") as file:
        headers = HeaderParser().parse(file)
    name = headers["Name"].replace("-", "_")
    folder = os.path.join(directory, f"{name}-{headers['Version']}.dist-info")
    os.mkdir(folder)
    shutil.copy("PKG-INFO", os.path.join(folder, "METADATA"))
    return os.path.basename(folder)
