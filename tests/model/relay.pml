/* The relay's protocol; docs/model.md says what stands for what, runs.py how each property is searched.
   Event e (0..N-1) has its number as binlog position and as id; each is a transaction of its own unless TX says otherwise.
   Every SQL transaction is one atomic step. A row: status st; pa = parked (status 0, next_retry_at set); dead = status 3
   without next_retry_at. No clock: what may be due, is due.
   The NO_x switches take one rule out; the B_x switches break a property on purpose. */
#ifndef N
#define N 4
#endif
#ifndef AMASK
#define AMASK 4               /* bit e = aggregate of event e: events 0,1,3 on aggregate 0, event 2 on aggregate 1 */
#endif
#ifndef RELAYS
#define RELAYS 2
#endif
#ifndef CRASH
#define CRASH 1               /* crashes or rebuilds */
#endif
#ifndef LOSS
#define LOSS 0                /* times the server ends the lock session of a leader that lives on (freeze, cut, KILL) */
#endif
#ifndef FAIL
#define FAIL 2                /* record-class failures */
#endif
#ifndef LOSTCK
#define LOSTCK 0              /* times the checkpoint row is deleted */
#endif
#ifndef MAXR
#define MAXR 1                /* max_retries */
#endif
#ifndef PERSON
#define PERSON 0              /* times a person sets a failed row (not dead) back to 0; next_retry_at stays set, PERSONNULL: becomes NULL */
#endif
#ifndef BOOT
#define BOOT 0                /* 1: first start finds no checkpoint row, events may already be there */
#endif
#ifndef TX
#define TX 0                  /* bit i = position i lies inside a transaction: events i-1 and i were committed together */
#endif
#define INSIDE(i) ((TX >> (i)) & 1)
#define WHOLE(i) ((i) + (INSIDE(i) -> (INSIDE((i) + 1) -> 2 : 1) : 0))   /* the end of the transaction that i lies in */
#define ENDED(i) ((i) - (INSIDE(i) -> (INSIDE((i) - 1) -> 2 : 1) : 0))   /* the end of the one before */
#ifndef HID
#define HID 0                 /* bit e = the binlog does not show event e (STATEMENT session, stepped over): only the table knows it */
#endif
#ifdef FAILOVER               /* once: a replica takes over that holds what the primary held at some moment before, statuses and checkpoint too */
#define GONE(e) gone[e]       /* committed on the old primary only; whatever is committed afterwards is another event */
#else
#define GONE(e) false
#endif
#define HIDDEN(e) ((HID >> (e)) & 1 || GONE(e))
#define AGG(e) ((AMASK >> (e)) & 1)
#define FINAL(e) (st[e] == 2 || dead[e] || GONE(e))

byte C, V;                    /* transactions in the binlog; those also visible to SELECT (V <= C) */
byte st[N]; bit dead[N], pa[N]; byte rc[N];
bit sent[N], exc[N];          /* reached Kafka; a duplicate is excused (P7) */
bit letter[N];                /* its dead letter reached Kafka */
byte lock;                    /* GET_LOCK: holder, 0 = free */
bit row, haspos; byte epoch, owner, cpos;
byte cur;                     /* ghost variable: who raised the epoch last */
bit pend; byte pe, pk, pc;     /* LOSTCOMMIT: a settle whose COMMIT got no answer; it holds its row locks */
byte ghost;                   /* records of a dead producer still on the wire */
byte crashes, losses, fails, lostck, persons;
bit zomb;
hidden byte i; byte j;
#ifdef FAILOVER
bit copied, moved, gone[N];   /* the replica has what it will have; it is the primary */
bit uuid;                     /* the checkpoint row's server_uuid: 0 the old primary's, 1 the new one's */
byte cC, cst[N], crc[N], cepoch, cowner, ccpos; bit cdead[N], cpa[N], crow, chaspos;   /* the replica's copy */
#define COPY(x, y) y = x
#endif
#ifdef FILEPOS                /* checkpoint_store: file, one on each relay's host, written after the commit that it belongs to */
byte fpos[2], fnew[2]; bit fhas[2], fowed[2], fuuid[2], led[2];   /* led: the server that the relay leads on */
#endif

#ifdef VIS
#define SEEN(e) ((e) < V)
#else
#define SEEN(e) ((e) < C && !GONE(e))
#endif
#ifdef NO_OWNER
#define OWN true
#else
#define OWN (owner == r)
#endif
#ifdef B_NOFENCE
#define G true
#else
#define G (row && epoch == ep && OWN && SAME_SERVER)
#endif
#if defined(FAILOVER) && !defined(NO_UUID)
#define SAME_SERVER (uuid == moved)
#else                         /* the fence does not say on which server the epoch was raised */
#define SAME_SERVER true
#endif

#ifdef FAILOVER
#define DIED(i) (dead[i] || letter[i])   /* the replica may not know of it */
#else
#define DIED(i) dead[i]
#endif
inline check_publish(e) {     /* a record lands in Kafka */
  i = 0;
  do                          /* P2 */
  :: i < e -> assert(sent[e] || AGG(i) != AGG(e) || sent[i] || DIED(i) || HIDDEN(i)); i++
  :: else -> break
  od;
  assert(!sent[e] || exc[e] || zomb);         /* P7: only what was in flight at a crash comes twice */
#ifndef P7WEAK
  assert(st[e] != 2);                         /* P7: never a settled one */
#endif
  sent[e] = 1; i = 0
}
inline reset(k) {             /* everything in flight is forgotten */
  i = 0;
  do
  :: i < N -> if :: mem[i] && mem[i] != 4 -> exc[i] = 1; :: else fi;
#ifdef GHOST
     if :: k && mem[i] == 1 -> ghost = ghost | (1 << i) :: else fi;
#endif
     mem[i] = 0; i++
  :: else -> break
  od;
#ifdef FILEPOS
  fowed[r - 1] = 0; fnew[r - 1] = 0;
#endif
  ep = 0; pos = 0; spos = 0; w = 0; noted = 0; blk[0] = 0; blk[1] = 0; sfl[0] = 0; sfl[1] = 0; sph = 0; swp = 0; qn[0] = 0; qn[1] = 0; i = 0
}
inline leave() { reset(0); ph = 0; if :: lock == r -> lock = 0 :: else fi }
#ifdef FILEPOS
#define STORE(p) fnew[r - 1] = p; fowed[r - 1] = 1
#if defined(FAILOVER) && !defined(NO_FILEUUID)
#define USABLE (row && fhas[r - 1] && fuuid[r - 1] == moved)   /* another server's: the rows may be behind it, all is swept */
#elif defined(FAILOVER)
#define USABLE (row && fhas[r - 1] && (!moved || fuuid[r - 1] || fpos[r - 1] <= cC))   /* the server itself refuses what it never had */
#else
#define USABLE (row && fhas[r - 1])
#endif
#define STORED fpos[r - 1]
#else
#define STORE(p) cpos = p; haspos = 1
#define USABLE (haspos && row)
#define STORED cpos
#endif
inline resumable() {          /* cpos := end of the last transaction before which nothing read by the tail is in flight */
#ifdef B_CKPT
  STORE(pos)
#else
  if
  :: ph == 5 -> i = 0;
     do
#ifdef B_PARKLATE             /* parking written after the checkpoint that passes it */
     :: i < pos && (mem[i] == 0 || mem[i] == 4 || (swp >> i) & 1) -> i++
#else
     :: i < pos && (mem[i] == 0 || (swp >> i) & 1) -> i++
#endif
     :: else -> break
     od;
#ifndef B_TXPOS               /* only a transaction's end is a position */
     i = ENDED(i);
#endif
     STORE(i); i = 0
  :: else
  fi
#endif
}
#define FAILED(i) (st[i] == 3 && !dead[i])
#define STUCK(i) (FAILED(i) || pa[i])
/* may the poller hand over e? Every earlier row of its aggregate is sent, dead or already handed over by this relay */
#ifdef NO_ELIG                /* only a failed one counts */
#define WAITS(i) (FAILED(i) || mem[i] == 3)
#else
#define WAITS(i) (!FINAL(i) && mem[i] != 1 && mem[i] != 2 && mem[i] != 5)
#endif
#ifdef STRICT
#define UNACKED(i) (mem[i] == 1)
#else
#define UNACKED(i) false
#endif
#define BEFORE(i, e) (i < N && i < (e) && AGG(i) == AGG(e) && (WAITS(i % N) || UNACKED(i % N)))
#define ELIG(e) (!BEFORE(0, e) && !BEFORE(1, e) && !BEFORE(2, e))
#define OPEN(e) (e < N && st[e % N] == 0 && !pa[e % N] && mem[e % N] == 0)
#ifdef NO_SWPARK              /* what the sweep finds and may not hand over stays as it is */
#define CAND(e) (OPEN(e) && (noted >> e) & 1 && ELIG(e))
#define LEFT(i) (OPEN(i) && i < pos)
#define USE(e) (OPEN(e) && SEEN(e) && (e >= pos || ELIG(e)))
#else                         /* it is parked (a write) */
#define CAND(e) (OPEN(e) && (noted >> e) & 1)
#define LEFT(i) false
#define USE(e) (OPEN(e) && SEEN(e))
#endif
#ifdef NO_UNSETTLED           /* "found nothing failed or parked": in the table only */
#define UNWRITTEN(i) false
#else                         /* a refusal or parking of this relay that is not written yet counts */
#ifdef NO_QBLOCK
#define UNWRITTEN(i) (mem[i] >= 3 && mem[i] != 5 && mem[i] != 7)
#else
#define UNWRITTEN(i) (mem[i] >= 3 && mem[i] != 7)
#endif
#endif
#ifdef NO_ONE
#define FOREIGN(i) false
#else                         /* a row at 1 that is not mine */
#define FOREIGN(i) (st[i] == 1 && mem[i] == 0)
#endif
#ifdef AT1                    /* a pass that finds a row of mine at 1 does not free either */
#define HELD(i) (st[i] == 1)
#else
#define HELD(i) false
#endif
#define WAITING(i, a) (i < N && AGG(i) == a && (UNWRITTEN(i % N) || SEEN(i) && (STUCK(i % N) || FOREIGN(i % N) || HELD(i % N) || LEFT(i))))
#define QUIET(a) (!WAITING(0, a) && !WAITING(1, a) && !WAITING(2, a) && !WAITING(3, a))
/* would a sweep pass change anything? (keeps the model free of empty loops) */
#define USEFUL (USE(0) || USE(1) || USE(2) || USE(3) || (blk[0] && QUIET(0)) || (blk[1] && QUIET(1)))
inline pick() { if :: CAND(0) -> j = 0 :: else -> if :: CAND(1) -> j = 1 :: else -> if :: CAND(2) -> j = 2 :: else -> if :: CAND(3) -> j = 3 :: else -> j = N fi fi fi fi }
inline hand(e) {              /* give e to the producer */
  assert(cur != r || (!FINAL(e) && mem[e] == 0));   /* P7 for whoever is leader */
  mem[e] = 1
}
#define PARKWAITING(k, e) if :: k < N && mem[k % N] == 7 && AGG(k) == AGG(e) -> mem[k % N] = 4 :: else fi
inline refuse(e) {
  mem[e] = 3; fails--; blk[AGG(e)] = 1; sfl[AGG(e)] = 1;
#ifndef B_WAITON              /* what waits in memory is parked behind a new refusal */
  PARKWAITING(0, e); PARKWAITING(1, e); PARKWAITING(2, e); PARKWAITING(3, e)
#endif
}
/* what waited in memory goes when its aggregate is free, in order */
#define GOWAITING(k, a) if :: !blk[a] && k < N && mem[k % N] == 7 && AGG(k) == a -> mem[k % N] = 0; hand(k % N) :: else fi
#define GOALL(a) GOWAITING(0, a); GOWAITING(1, a); GOWAITING(2, a); GOWAITING(3, a)
#define FLYING(i, e) (i < N && i != (e) && AGG(i) == AGG(e) && UNACKED(i % N))
#define WAY(e) (!FLYING(0, e) && !FLYING(1, e) && !FLYING(2, e) && !FLYING(3, e))
#ifdef B_NOREPLAY
#define REPLAY false
#else
#define REPLAY (pos < spos && SEEN(pos) && (st[pos] >= 2 || pa[pos] || FOREIGN(pos)))
#endif
#ifdef B_NOPARK
#define PARKED false
#else
#define PARKED (blk[AGG(pos)])
#endif
#ifdef B_PARKMEM              /* parking is no write: the sweep is to find the row */
#define PARK skip
#else
#define PARK mem[pos] = 4
#endif
#ifdef CLAIMROW
#define CLAIMABLE (SEEN(pos))
#define CLAIM(e) st[e] = 1
#else
#define CLAIMABLE true
#define CLAIM(e) skip
#endif

#define FIRST(k) !(k > 0 && AGG(0) == AGG(k) && mem[0] == 1) && !(k > 1 && AGG(1) == AGG(k) && mem[1] == 1) && !(k > 2 && AGG(2) == AGG(k) && mem[2 % N] == 1)
#define LAND(k) :: d_step { k < N && mem[k % N] == 1 && FIRST(k) -> check_publish(k % N); mem[k % N] = 2 }
#define LATE(k) :: d_step { k < N && fails && mem[k % N] == 1 && FIRST(k) -> refuse(k % N) }
#ifdef B_LETTERLAST           /* the row is marked dead whether its letter is out or not */
#define LETTER(k)
#define LETTERED(k) true
#else                         /* retries used up: the letter first, the row after its acknowledgement */
#define LETTER(k) :: d_step { k < N && mem[k % N] == 3 && rc[k % N] == MAXR && !letter[k % N] -> letter[k % N] = 1 }
#define LETTERED(k) (mem[k % N] != 3 || rc[k % N] < MAXR || letter[k % N])
#endif
#define SETTLE(k) LETTER(k) :: d_step { k < N && mem[k % N] >= 2 && mem[k % N] != 5 && mem[k % N] != 7 && LETTERED(k) && SEEN(k) && !pend -> \
    if \
    :: !G -> leave() \
    :: else -> assert(cur == r); /* P6 */ assert(zomb || (st[k % N] < 2 && !pa[k % N])); /* P4 */ \
       if :: mem[k % N] == 2 -> st[k % N] = 2 \
          :: mem[k % N] == 4 -> assert(st[k % N] == 0); pa[k % N] = 1 \
          :: mem[k % N] == 6 -> assert(st[k % N] == 1); st[k % N] = 3 \
          :: else -> st[k % N] = 3; if :: rc[k % N] < MAXR -> rc[k % N]++ :: else -> assert(letter[k % N]); dead[k % N] = 1 fi \
       fi; \
       mem[k % N] = 0; swp = swp & ~(1 << k); UNBLOCK(k) resumable() \
    fi }
#define DUE(k) (k < N && !pend && ph == 5 && STUCK(k % N) && mem[k % N] == 0)
#ifdef QUEUED                 /* the poller claims and queues; another thread hands over later and may refuse then */
#ifdef NO_QBLOCK              /* the tail does not mind what waits in the queue */
#define GIVE(e) mem[e] = 5
#else
#define GIVE(e) mem[e] = 5; blk[AGG(e)] = 1; sfl[AGG(e)] = 1
#endif
#define GIVEBAD fails > FAIL
#else
#define GIVE(e) hand(e)
#define GIVEBAD fails
#endif
#ifdef NO_ONETX               /* 3 -> 0 and 0 -> 1 are two transactions */
#define RETRY(k) :: d_step { DUE(k) && (FAILED(k % N) || ELIG(k)) -> \
    if :: !G -> leave() :: else -> assert(cur == r); st[k % N] = 0; pa[k % N] = 0 fi }
#else                         /* due (3 or parked): -> 0 -> 1 in one transaction, then handed over */
#define TAKE(k) assert(cur == r); st[k % N] = 1; pa[k % N] = 0; swp = swp | (1 << k)
#define RETRY(k) :: d_step { DUE(k) && ELIG(k) -> if :: !G -> leave() :: else -> TAKE(k); GIVE(k % N) fi } \
                 :: d_step { DUE(k) && ELIG(k) && GIVEBAD && G -> TAKE(k); refuse(k % N) }
#endif
#define QFIRST(i, k) (i < k && AGG(i) == AGG(k) && mem[i % N] == 5)
#define BADLY(i, k) (i < k && AGG(i) == AGG(k) && !FINAL(i % N) && mem[i % N] != 1 && mem[i % N] != 2)
#ifdef RECHECK                /* an earlier one was refused meanwhile: back to 3, due, retry_count unchanged */
#define SKIPPED(k) (BADLY(0, k) || BADLY(1, k) || BADLY(2, k))
#else
#define SKIPPED(k) false
#endif
#define DEQ(k) :: d_step { k < N && mem[k % N] == 5 && !QFIRST(0, k) && !QFIRST(1, k) && !QFIRST(2, k) -> \
                   if :: SKIPPED(k) -> mem[k % N] = 6; blk[AGG(k)] = 1; sfl[AGG(k)] = 1 :: else -> mem[k % N] = 0; hand(k % N) fi } \
               :: d_step { k < N && mem[k % N] == 5 && fails && !SKIPPED(k) && !QFIRST(0, k) && !QFIRST(1, k) && !QFIRST(2, k) -> refuse(k % N) }
/* a due row behind one that waits in memory: that one is parked as well, and both are due by id */
#define BEHIND(i, k) (i < N && i < k && AGG(i) == AGG(k) && mem[i % N] == 7)
#define UNWAIT(k) :: d_step { DUE(k) && (BEHIND(0, k) || BEHIND(1, k) || BEHIND(2, k)) -> \
    sfl[AGG(k)] = 1; PARKWAITING(0, k); PARKWAITING(1, k); PARKWAITING(2, k); PARKWAITING(3, k) }
#define WAITGO(k) :: d_step { k < N && mem[k % N] == 7 -> mem[k % N] = 0; hand(k % N) }
#define EARLY(k) :: d_step { k < N && mem[k % N] >= 2 && mem[k % N] <= 4 && !j -> j = mem[k % N]; mem[k % N] = 0; resumable(); mem[k % N] = j; j = 0 }
#define MARK1(k) :: d_step { k < N && !pend && mem[k % N] == 1 && st[k % N] == 0 && SEEN(k) -> if :: !G -> leave() :: else -> assert(cur == r); st[k % N] = 1 fi }
#define REL1(k) :: d_step { k < N && !pend && ph == 5 && st[k % N] == 1 && mem[k % N] == 0 -> if :: !G -> leave() :: else -> assert(cur == r); st[k % N] = 3 fi }
#ifdef NO_REB                 /* a rebuild that keeps its epoch */
#define AGAIN ep = epoch; ph = 3
#else
#define AGAIN ph = 1
#endif
#define LOSE(k) :: d_step { k < N && crashes && mem[k % N] >= 2 && mem[k % N] <= 4 && SEEN(k) && !pend && G && lock == r -> \
    crashes--; pend = 1; pe = k; pk = mem[k % N]; mem[k % N] = 0; exc[k % N] = 1; pc = cpos; resumable(); w = cpos; cpos = pc; pc = w; reset(0); AGAIN }
#ifdef NO_DRAIN
#define UNBLOCK(k) if :: FINAL(k % N) -> blk[AGG(k)] = 0 :: else fi;
#else
#define UNBLOCK(k)
#endif

proctype Relay(byte r) {
  byte ph;   /* 0 standby 1 has the lock 2 epoch raised 3 rows released 4 bootstrap sweep 5 running */
  byte ep, pos, spos, w, noted, swp;
  byte mem[N]; /* 0 nothing 1 handed over 2 acked 3 refused 4 to be parked 5 queued by the poller 6 put back 7 waits in memory */
  bit blk[2], sfl[2], qn[2], sph;
end:
  do
  :: d_step { ph == 0 && lock == 0 -> lock = r; ph = 1; spos = C }
#ifdef NO_RAISE
  :: d_step { ph == 1 ->
#else
  :: d_step { ph == 1 && lock == r && !pend ->           /* raised on the session that holds the lock */
#endif
      assert(lock == r);                        /* P6: who lost the lock writes nothing */
      if :: row -> epoch++ :: else -> row = 1; epoch = 1; haspos = 0; cpos = 0 fi;
#ifdef FAILOVER
#ifdef FILEOFFSET
#ifdef NO_FOREIGN             /* followed all the same, wherever it leads */
      if :: uuid != moved && cpos < C -> cpos++ :: else fi;
#else                         /* by file and offset: it says nothing on another server */
      if :: uuid != moved -> haspos = 0; cpos = 0 :: else fi;
#endif
#endif
      uuid = moved;
#ifdef FILEPOS
      led[r - 1] = moved;
#endif
#endif
      owner = r; ep = epoch; cur = r; ph = 2 }
  :: d_step { ph == 2 && !pend ->                        /* rows at 1: 3, due at once, retry_count unchanged */
#ifdef NO_RELFENCE
      assert(cur == r);
      if :: false -> skip
#else
      if :: !G -> leave()
#endif
      :: else -> assert(cur == r); 
         i = 0;
         do
         :: i < N ->
#ifdef LISTFIRST              /* blocked aggregates read before the rows at 1 become 3, as the sentence was written */
            if :: SEEN(i) && STUCK(i) -> blk[AGG(i)] = 1 :: else fi;
#endif
#ifndef DELAYREL              /* claim: row turns them only after sending_timeout, see REL1 */
#ifdef B_REL0
            if :: st[i] == 1 -> st[i] = 0 :: else fi;
#else
            if :: st[i] == 1 -> st[i] = 3 :: else fi;
#endif
#endif
            i++
         :: else -> break
         od;
         i = 0; ph = 3
      fi }
#if defined(VIS) && !defined(NO_VISWAIT)
#define VISWAIT && V >= pos
#else
#define VISWAIT
#endif
#ifdef GTIDPOS                /* gtid_executed: lags, never leads */
#define STARTPOINT V
#else
#define STARTPOINT C
#endif
  :: d_step { ph == 3 && !pend ->                /* position and blocked aggregates: read under the epoch just raised */
#ifndef NO_STARTFENCE
      if :: !G -> leave() :: else
#else
      if :: true
#endif
      ->
#ifndef EARLYSPOS             /* the position up to which statuses are checked: taken after the epoch was raised */
      spos = C;
#endif
      i = 0;
      if :: USABLE -> pos = WHOLE(STORED); ph = 5   /* a server begins with a whole one */ :: else -> pos = STARTPOINT; ph = 4 fi;
      do                                        /* blocked aggregates, from the rows */
      :: i < N ->
#ifndef LISTFIRST
#ifndef NO_START3
         if :: SEEN(i) && FAILED(i) -> blk[AGG(i)] = 1 :: else fi;
#endif
#ifndef NO_STARTP
         if :: SEEN(i) && pa[i] -> blk[AGG(i)] = 1 :: else fi;
#endif
#ifndef NO_ONEBLK             /* claim: row: those still at 1 too */
         if :: SEEN(i) && st[i] == 1 -> blk[AGG(i)] = 1 :: else fi;
#endif
#endif
         i++
      :: else -> break
      od;
      i = 0
      fi }
  /* bootstrap: position (pos) was taken; then the sweep's SELECT, then hand over in id order, then tail */
  :: d_step { ph == 4 && !sph VISWAIT ->
      sph = 1; noted = 0; i = 0;
      do :: i < N -> if :: SEEN(i) && st[i] == 0 && !pa[i] -> noted = noted | (1 << i) :: else fi; i++ :: else -> break od; i = 0;
#ifndef NO_BSPOS
      spos = C                                  /* the status check lasts until what the sweep may have seen is passed */
#endif
    }
  :: atomic { (ph == 4 && sph) || (ph == 5 && sph && pos >= w && !pend) ->
      d_step { pick() }
      if
      :: j < N ->
         if
         :: !G -> d_step { j = 0; leave() }
         :: G && ELIG(j) -> d_step { assert(cur == r); st[j] = 1; noted = noted & ~(1 << j); swp = swp | (1 << j); GIVE(j); j = 0 }
         :: G && !ELIG(j) -> d_step { assert(cur == r); pa[j] = 1; noted = noted & ~(1 << j); blk[AGG(j)] = 1; sfl[AGG(j)] = 1; j = 0 }
         :: G && ELIG(j) && GIVEBAD -> d_step { assert(cur == r); st[j] = 1; noted = noted & ~(1 << j); swp = swp | (1 << j); refuse(j); j = 0 }
         fi
      :: else -> d_step {
#ifndef NO_ONE                 /* what others hold: a row at 1 that is not mine, a claim that came short */
         j = 0;
         do :: j < N -> if :: SEEN(j) && !FINAL(j) && mem[j] == 0 && ((noted >> j) & 1 || FOREIGN(j)) -> blk[AGG(j)] = 1; sfl[AGG(j)] = 1 :: else fi; j++ :: else -> break od;
#endif
         sph = 0; noted = 0; w = 0;
         if :: ph == 4 -> ph = 5
            j = 0;
#ifdef NO_SWPARK
            do :: j < pos -> if :: !FINAL(j) && mem[j] == 0 -> blk[AGG(j)] = 1 :: else fi; j++ :: else -> break od
#endif
         :: else ->
            j = 0;
            if :: qn[0] && !sfl[0] -> blk[0] = 0 :: else fi; if :: qn[1] && !sfl[1] -> blk[1] = 0 :: else fi; qn[0] = 0; qn[1] = 0;
            GOALL(0); GOALL(1)
         fi;
         j = 0 }
      fi }
#ifndef B_NOSWEEP
  :: d_step { ph == 5 && !sph && USEFUL ->
         sph = 1; w = C; noted = 0; sfl[0] = 0; sfl[1] = 0; qn[0] = blk[0] && QUIET(0); qn[1] = blk[1] && QUIET(1); i = 0;
#ifdef B_STEAL
         w = 0;
#endif
         do :: i < N -> if :: SEEN(i) && st[i] == 0 && !pa[i] && mem[i] == 0 -> noted = noted | (1 << i) :: else fi; i++ :: else -> break od; i = 0 }
#endif
  /* tail */
  :: d_step { ph == 5 && pos < C && HIDDEN(pos) -> pos++ }
  :: atomic { ph == 5 && pos < C && !HIDDEN(pos) && (mem[pos] || REPLAY || PARKED || (WAY(pos) && CLAIMABLE)) ->
      if
      :: mem[pos] -> d_step { pos++ }
      :: !mem[pos] && REPLAY -> d_step { if :: !FINAL(pos) -> blk[AGG(pos)] = 1; sfl[AGG(pos)] = 1 :: else fi; pos++ }
      :: !mem[pos] && !REPLAY && PARKED -> d_step { PARK;
#ifndef NO_SFL
           sfl[AGG(pos)] = 1;
#endif
           pos++ }
#ifdef WAITMEM                /* few rows of its aggregate are left: it waits in memory for the pass that frees it */
      :: !mem[pos] && !REPLAY && PARKED -> d_step { mem[pos] = 7; pos++ }
#endif
#ifdef CLAIMROW
      :: !mem[pos] && !REPLAY && !PARKED && !G -> d_step { leave() }
      :: !mem[pos] && !REPLAY && !PARKED && G && st[pos] -> d_step { assert(FINAL(pos)); pos++ }
      :: !mem[pos] && !REPLAY && !PARKED && G && !st[pos] -> d_step { assert(cur == r); CLAIM(pos); hand(pos); pos++ }
      :: !mem[pos] && !REPLAY && !PARKED && G && !st[pos] && fails -> d_step { CLAIM(pos); refuse(pos); pos++ }
#else
      :: !mem[pos] && !REPLAY && !PARKED -> d_step { hand(pos); pos++ }
      :: !mem[pos] && !REPLAY && !PARKED && fails -> d_step { refuse(pos); pos++ }   /* known before sending */
#endif
      fi }
  LAND(0) LAND(1) LAND(2) LAND(3)
#ifdef LATEREF
  LATE(0) LATE(1) LATE(2) LATE(3)
#endif
#ifdef LOSTCOMMIT
  LOSE(0) LOSE(1) LOSE(2) LOSE(3)
#endif
  SETTLE(0) SETTLE(1) SETTLE(2) SETTLE(3)
  RETRY(0) RETRY(1) RETRY(2) RETRY(3)
#ifdef QUEUED
  DEQ(0) DEQ(1) DEQ(2) DEQ(3)
#endif
#if defined(WAITMEM) && !defined(NO_UNWAIT)
  UNWAIT(1) UNWAIT(2) UNWAIT(3)
#endif
#ifdef B_WAITGO               /* it goes before any pass has found its aggregate empty */
  WAITGO(0) WAITGO(1) WAITGO(2) WAITGO(3)
#endif
#ifdef MARK                   /* in flight for 1 s: marked 1 */
  MARK1(0) MARK1(1) MARK1(2) MARK1(3)
#endif
#ifdef DELAYREL
  REL1(0) REL1(1) REL1(2) REL1(3)
#endif
#ifdef B_FILEFIRST            /* written before the rows: a crash in between leaves it ahead of them */
  EARLY(0) EARLY(1) EARLY(2) EARLY(3)
#endif
#ifdef FILEPOS
  :: d_step { ph && fowed[r - 1] -> fpos[r - 1] = fnew[r - 1]; fhas[r - 1] = 1; fuuid[r - 1] = led[r - 1]; fowed[r - 1] = 0; fnew[r - 1] = 0 }
#endif
  /* faults */
  :: d_step { crashes && ph -> crashes--; reset(1); ph = 0; if :: lock == r -> lock = 0 :: else fi }
#ifdef REBUILD
  :: d_step { crashes && ph > 1 && lock == r && !pend && cur == r && row -> crashes--; reset(0); AGAIN }
#endif
  :: d_step { losses && lock == r && ph -> losses--; lock = 0; zomb = 1 }
  :: d_step { ph && lock != r -> leave() }      /* notices in the end */
  od
}

#ifdef GHOST
#define GFIRST(k) !(k > 0 && AGG(0) == AGG(k) && ghost & 1) && !(k > 1 && AGG(1) == AGG(k) && ghost & 2) && !(k > 2 && AGG(2) == AGG(k) && ghost & 4)
#define GLAND(k) :: d_step { k < N && (ghost >> k) & 1 && GFIRST(k) -> ghost = ghost & ~(1 << k); check_publish(k % N) }
proctype Net() {
end:
  do
  GLAND(0) GLAND(1) GLAND(2) GLAND(3)
  :: ghost -> ghost = 0
  od
}
#endif

#ifdef PERSONNULL
#define KEEP 0
#else
#define KEEP 1
#endif
#define BACK(k) :: d_step { k < N && persons && !pend && FAILED(k % N) -> persons--; st[k % N] = 0; rc[k % N] = 0; pa[k % N] = KEEP }
proctype App() {
end:
  do
  BACK(0) BACK(1) BACK(2) BACK(3)
  :: C < N -> C = WHOLE(C + 1)
#ifdef VIS
  :: V < C -> V = WHOLE(V + 1)
#endif
  :: d_step { pend -> pend = 0; cpos = pc;
       if :: pk == 2 -> st[pe] = 2 :: pk == 4 -> pa[pe] = 1 :: else -> st[pe] = 3; if :: rc[pe] < MAXR -> rc[pe]++ :: else -> dead[pe] = 1 fi fi; pe = 0; pk = 0; pc = 0 }
  :: d_step { pend -> pend = 0; pe = 0; pk = 0; pc = 0 }
#ifdef FAILOVER
  :: d_step { !copied && !pend -> copied = 1; i = 0;
       do :: i < N -> COPY(st[i], cst[i]); COPY(rc[i], crc[i]); COPY(dead[i], cdead[i]); COPY(pa[i], cpa[i]); i++ :: else -> break od; i = 0;
       COPY(C, cC); COPY(row, crow); COPY(haspos, chaspos); COPY(cpos, ccpos); COPY(epoch, cepoch); COPY(owner, cowner) }
  :: d_step { copied && !moved && !pend -> moved = 1; i = 0;
       do
       :: i < N ->
          if :: sent[i] && st[i] != cst[i] -> exc[i] = 1 :: else fi;        /* its outcome is lost: it is sent again */
          if :: i >= cC && i < C -> gone[i] = 1 :: else fi;
          COPY(cst[i], st[i]); COPY(crc[i], rc[i]); COPY(cdead[i], dead[i]); COPY(cpa[i], pa[i]); cst[i] = 0; crc[i] = 0; cdead[i] = 0; cpa[i] = 0; i++
       :: else -> break
       od; i = 0;
       COPY(crow, row); COPY(chaspos, haspos); COPY(ccpos, cpos); COPY(cepoch, epoch); COPY(cowner, owner);
       if :: lock -> zomb = 1 :: else fi;
       lock = 0; cur = 0 }                      /* its named locks are its own; nobody has raised an epoch there */
#endif
  :: d_step { lostck && row && !pend -> lostck--; row = 0; haspos = 0; cpos = 0; epoch = 0; owner = 0 }
  od
}

proctype Quiet() {            /* P1: when nothing can move any more, every event is sent or dead */
end:
  timeout -> i = 0;
  d_step { do :: i < N -> assert(FINAL(i)); i++ :: else -> break od; i = 0 }
}

init {
  atomic {
    if :: crashes = CRASH :: CRASH > 0 -> crashes = 0 :: CRASH > 1 -> crashes = 1 fi;
    if :: losses = LOSS :: LOSS > 0 -> losses = 0 fi;
    if :: lostck = LOSTCK :: LOSTCK > 0 -> lostck = 0 fi;
    fails = FAIL; persons = PERSON;
    if :: BOOT == 0 -> row = 1; haspos = 1 :: else fi;
    run Relay(1);
    if :: RELAYS > 1 -> run Relay(2) :: else fi;
    run App(); run Quiet();
#ifdef GHOST
    run Net();
#endif
  }
}
