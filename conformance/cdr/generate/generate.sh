#!/bin/sh
# Regenerates ../vectors.jsonl and ../refused.jsonl with Cyclone DDS, Fast CDR and the model, and has Cyclone DDS read what
# others wrote; see README.md for the versions.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$(mktemp -d)}
mkdir -p "$build/fastcdr" "$build/readback"
build=$(cd "$build" && pwd)
export PYTHONDONTWRITEBYTECODE=1
# Topics of our own process only.
export CYCLONEDDS_URI='<General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast></General>'

# Types that state no extensibility are appendable, which this version of Cyclone DDS encodes as XCDR2 only; plain CDR, where
# final types look the same, it gives for them as final ones.
cyclone() { # encoding extensibility
  mkdir -p "$build/cyclone/$1"
  cd "$build/cyclone/$1"
  for idl in "$here"/../idl/*.idl "$here"/../../../workloads/market_data.idl; do
    case $idl in
      */wide.idl | */bitset.idl | */maps.idl) ;; # idlc 0.10 refuses these
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
