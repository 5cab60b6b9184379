#!/bin/sh
# generate.sh [FOLDER]: regenerates ../vectors.jsonl and ../refused.jsonl with Cyclone DDS, Fast CDR
# and the model, then lets Cyclone DDS read the vectors of others. Builds in FOLDER, or in a new
# temporary folder. ../README.md names the versions.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$(mktemp -d)}
mkdir -p "$build/fastcdr" "$build/readback"
build=$(cd "$build" && pwd)
export PYTHONDONTWRITEBYTECODE=1
# The topics must not be visible outside this machine.
export CYCLONEDDS_URI='<General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast></General>'

# Types that state no extensibility are appendable. This version of Cyclone DDS encodes appendable
# types as XCDR2 only. For XCDR1 they are compiled as final, which has the same encoding.
cyclone() { # encoding extensibility
  mkdir -p "$build/cyclone/$1"
  cd "$build/cyclone/$1"
  for idl in "$here"/../idl/*.idl "$here"/../../../workloads/market_data.idl; do
    case $idl in
      */wide.idl | */bitset.idl | */maps.idl) ;; # idlc 0.10 cannot compile these
      *) idlc -t -f case-sensitive -x "$2" -Wno-implicit-extensibility -Wno-enum-consecutive "$idl" ;;
    esac
  done
  python3 "$here/cyclone.py" "$here/../idl" > cases.c
  cc -Wall -I. -I"$here" ./*.c "$here/cyclone.c" -lddsc -o cyclone
  ./cyclone "$1"
}
cyclone xcdr1 final > "$build/cyclone.txt"
cyclone xcdr2 appendable >> "$build/cyclone.txt"

cd "$build/fastcdr"
python3 "$here/fastcdr.py" "$here/../idl" > cases.cpp
c++ -std=c++17 -Wall -I"$here" cases.cpp "$here/fastcdr.cpp" -lfastcdr -o fastcdr
./fastcdr > "$build/fastcdr.txt"

python3 "$here/vectors.py" "$here/.." "$build"

cd "$build/readback"
python3 "$here/readback.py" offer "$here/.." > offers.c
cc -Wall -I"$build/cyclone/xcdr2" -I"$here" offers.c "$here/readback.c" $(ls "$build"/cyclone/xcdr2/*.c | grep -v cases.c) -lddsc -o readback
./readback > "$build/readback.txt"
python3 "$here/readback.py" compare "$here/.." "$build/readback.txt"
