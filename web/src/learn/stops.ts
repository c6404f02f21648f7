// The fifteen stops, in order.
import { oneToken, theRoof, whereBytesLive } from "./roof";
import { growingCache, manyUsers, pagesNotPromises, withoutTheSquare } from "./share";
import { guessAndCheck, yourWall } from "./spend";
import { oneStep, readAndWrite, tilesInFlight } from "./step";
import { fewerBits, fullSeats, unseenByTheRoof } from "./trade";

export const kStops = [
  oneToken, whereBytesLive, theRoof, oneStep, readAndWrite, tilesInFlight, manyUsers, withoutTheSquare, growingCache, pagesNotPromises,
  fewerBits, unseenByTheRoof, fullSeats, guessAndCheck, yourWall,
];
